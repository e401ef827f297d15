"""Chinese words of developers and their English meanings, for searching descriptions in the other language."""

_WORDS = """
数据库=database sql|数据=data|表格=spreadsheet table excel|电子表格=spreadsheet excel|文档=document docs|
文件=file|文件夹=folder directory|目录=directory folder|图片=image picture|图像=image|照片=photo image|
截图=screenshot|视频=video|音频=audio|音乐=music|语音=voice speech|字幕=subtitle caption|
翻译=translate translation|总结=summary summarize|摘要=summary abstract|笔记=note|邮件=email mail|
邮箱=email mailbox|日历=calendar|日程=calendar schedule|会议=meeting|天气=weather|下雨=rain weather|地图=map|
位置=location|搜索=search|查询=query lookup|检索=search retrieval|下载=download|上传=upload|安装=install|
部署=deploy deployment|发布=release publish|公开=public|开源=open source|仓库=repository repo|代码=code|
代码库=codebase repository|编程=programming coding|程序=program|脚本=script|函数=function|类=class|
接口=interface api|测试=test testing|单元测试=unit test|调试=debug debugging|错误=error|报错=error|
故障=failure incident|修复=fix repair|审查=review audit|代码审查=code review|审计=audit|安全=security|
漏洞=vulnerability|扫描=scan|加密=encryption|密码=password|登录=login authentication|认证=authentication|
授权=authorization|权限=permission|用户=user|客户=customer client|团队=team|项目=project|产品=product|
需求=requirement|设计=design|架构=architecture|界面=interface ui|前端=frontend|后端=backend|网页=web page|
网站=website|网址=url website|浏览器=browser|爬虫=scraper crawler|抓取=scrape fetch|服务器=server|云=cloud|
容器=container docker|微服务=microservices|单体=monolith|服务=service|网络=network|域名=domain|地址=address|
协议=protocol|合并=merge|分支=branch|冲突=conflict|提交=commit|版本=version|依赖=dependency dependencies|
第三方库=dependency library|库=library|包=package|框架=framework|组件=component|模块=module|插件=plugin|
配置=config configuration|环境=environment|变量=variable|性能=performance|优化=optimize optimization|缓存=cache|
日志=log logging|监控=monitoring|告警=alert|指标=metrics|机器学习=machine learning|深度学习=deep learning|
模型=model|训练=training|大模型=llm|人工智能=ai|提示词=prompt|智能体=agent|代理=agent proxy|
对话=conversation chat|聊天=chat|机器人=bot robot|知识库=knowledge base|向量=vector embedding|
图表=chart diagram|流程图=flowchart diagram|画图=draw diagram|可视化=visualization chart|
幻灯片=slides presentation|演示=presentation demo|演讲=presentation|报告=report|日报=daily report|
周报=weekly report|论文=paper|文章=article|博客=blog|写作=writing|小说=novel fiction|简历=resume cv|
合同=contract|法律=legal law|官司=case litigation|案件=case matter|律师=lawyer legal|发票=invoice|财务=finance|
股票=stock|投资=investment|交易=trading|支付=payment|价格=price pricing|市场=market|营销=marketing|
广告=advertising ads|销售=sales|电商=ecommerce|订单=order|物流=logistics shipping|供应商=supplier vendor|
招聘=recruiting hiring|面试=interview|学习=learning study|考试=exam|课程=course|教程=tutorial|健康=health|
营养=nutrition|运动=exercise fitness|睡眠=sleep|医疗=medical|菜谱=recipe|旅行=travel|酒店=hotel|机票=flight|
游戏=game|动画=animation|二维码=qr code|条形码=barcode|扫码=qr scan|水印=watermark|背景=background|
抠图=background removal|压缩=compress compression|转换=convert conversion|格式=format|解析=parse|提取=extract|
生成=generate|创建=create|编辑=edit|删除=delete|清理=clean cleanup|备份=backup|迁移=migration migrate|同步=sync|
自动化=automation|定时=schedule cron|任务=task|计划=plan|工作流=workflow|流程=process workflow|消息=message|
通知=notification|飞书=feishu lark|钉钉=dingtalk|微信=wechat|公众号=wechat|小红书=xiaohongshu|
抖音=douyin tiktok|知乎=zhihu|手机=mobile phone|移动端=mobile|苹果=apple ios|安卓=android|桌面=desktop|
终端=terminal|命令行=command line cli|正则=regex|图标=icon|颜色=color|字体=font|排版=typography layout|
表单=form|许可证=license|合规=compliance|隐私=privacy|政策=policy|官方=official|验证=verify validation|
检查=check|分析=analysis analyze|统计=statistics|预测=forecast prediction|评估=evaluation assessment|
比较=compare comparison|竞品=competitor|表结构=schema|索引=index|算命=fortune bazi|出生=birth|增长=growth|
用户增长=growth|功能=feature|首页=readme homepage|说明=readme documentation
"""
#: Each Chinese word with its English meanings.
MEANINGS = {
    word: tuple(meanings.split())
    for word, _, meanings in (pair.strip().partition("=") for pair in _WORDS.split("|") if "=" in pair)
}
LONGEST = max(map(len, MEANINGS))
